"""Jails for processes, made of the rights that Linux lets a program give up permanently, without any privilege."""
