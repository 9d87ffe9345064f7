"""CPU-bound Python: JSON, regular expressions, sorting, deep recursion."""
import json
import re
import sys
import time

end = time.monotonic() + float(sys.argv[1])
word = re.compile(r"(\w+)-(\d+)")


def descend(n):
    return 1 + descend(n - 1) if n else 0


rounds = 0
while time.monotonic() < end:
    rows = [{"name": "row-%d" % i, "values": list(range(i % 30))} for i in range(2000)]
    text = json.dumps(rows, sort_keys=True)
    back = json.loads(text)
    back.sort(key=lambda row: (len(row["values"]), row["name"]))
    assert sum(int(m.group(2)) for m in word.finditer(text)) > 0
    descend(500)
    rounds += 1
print(rounds, "rounds")
