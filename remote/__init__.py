"""What runs on the machine: agent, transfer, data set, trainer. Knows nothing of the launcher or of prices."""
