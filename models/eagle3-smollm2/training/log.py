"""Lines with the seconds since the program began."""

import time

BEGIN = time.time()


def log(*parts):
    print(f"[{time.time() - BEGIN:7.1f}]", *parts, flush=True)
