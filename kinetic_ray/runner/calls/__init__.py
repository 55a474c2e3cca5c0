"""`.remote()` on the cluster's side: the desk, the agents of call gangs, and their warm children."""
