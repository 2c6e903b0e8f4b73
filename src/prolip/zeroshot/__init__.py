"""Zero-shot and few-shot classification: class names, templates, prompt weights, BPRW."""
