"""Image-text data: everyone's files, procedural scenes, and the loader that trains from both."""
