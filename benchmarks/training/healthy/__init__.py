"""Training programs without a fault, each in the manner of programs that many people write. They train until they are
killed. Each needs torch only; `ranks.py` needs a launcher of ranks."""
