"""`python -m fuzz TARGET --seconds N`: coverage-guided fuzzing of one target with atheris."""

import argparse
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kvcache_exporter"]):
    from fuzz.targets import TARGETS

from fuzz.corpus import seeds

_LIMITS = ("-timeout=20", "-rss_limit_mb=1500", "-max_len=16384", "-print_final_stats=1")


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, default=Path(".cache/fuzz"), help="kept from run to run")
    arguments = parser.parse_args()
    corpus = arguments.corpus / arguments.target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(arguments.target)):
        (corpus / f"seed-{number}").write_bytes(seed)
    found = arguments.corpus / f"found-{arguments.target}-"
    options = (f"-max_total_time={arguments.seconds}", f"-artifact_prefix={found}", *_LIMITS)
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[arguments.target])
    atheris.Fuzz()


main()
