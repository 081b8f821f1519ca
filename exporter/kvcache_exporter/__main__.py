"""`python -m kvcache_exporter`."""

import sys

from kvcache_exporter.cli import main

sys.exit(main())
