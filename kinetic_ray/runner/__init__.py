"""What runs remotely: the driver of a job, the agent of a host, and the child that is a rank."""
