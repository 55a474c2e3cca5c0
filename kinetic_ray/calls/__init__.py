"""`.remote()` on the client's side: joining the cluster, code as it is now, calls and their refs."""
