"""YOLOv9 in training form: model, loss, data, recipe and loop. Written from the paper (arXiv 2402.13616).

Knows nothing of clouds, storage or the agent: it reads a configuration file and a data set, and writes into one folder.
"""

import os

# Before torch loads its OpenMP runtime: threads that spin at barriers make a step up to twenty times slower as soon as
# another process wants one of the cores, and the agent and the transfer program do.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
