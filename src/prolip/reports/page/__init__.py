"""One self-contained HTML page of a training run: `build.build`."""
