"""What is promised in numbers, measured: `python -m benchmarks`."""
