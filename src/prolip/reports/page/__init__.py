"""The HTML page of a training run: `build.build_report`."""
