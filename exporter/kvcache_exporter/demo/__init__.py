"""A recording of real engines that is played through the real exporter."""
