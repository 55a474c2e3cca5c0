"""The command `kinetic`: one file a noun; click is used nowhere else."""
