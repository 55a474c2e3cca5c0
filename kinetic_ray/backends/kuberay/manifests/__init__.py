"""What Kubernetes is given, as plain dictionaries made of frozen values; nothing here reads, writes or asks."""
