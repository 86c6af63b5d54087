"""The jail of a process: what the Linux kernel lets a program give up for good, without any privilege."""
