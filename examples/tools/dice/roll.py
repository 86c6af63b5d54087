"""Rolls dice: reads its arguments as a JSON object from standard input, and writes the result as one."""

import json
import secrets
import sys

count = int(json.load(sys.stdin).get("count", 1))
if not 1 <= count <= 20:
    sys.exit("count must be 1 to 20")
rolled = [secrets.randbelow(6) + 1 for _ in range(count)]
json.dump({"dice": rolled, "sum": sum(rolled)}, sys.stdout)
