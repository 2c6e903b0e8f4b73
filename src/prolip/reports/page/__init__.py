"""The HTML page of a training run or of results: `build.build_report`."""
