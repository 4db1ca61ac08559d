"""Amazon EC2 behind the provider port."""
