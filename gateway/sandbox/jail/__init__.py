"""Between the workshop and a command: the processes that become it and watch over it, and what each gives up."""
