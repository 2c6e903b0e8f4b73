"""The towers once more, slowly: one sample at a time, softmax written out, float64. The independent definition."""

import math

import torch

ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "quick_gelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def norm(x, w, name, eps):
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x, w, name):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def attend(q, k, v, heads, may):
    """q (A, W) asks k, v (T, W); may(a, t) says whether it may read."""
    size = q.shape[-1] // heads
    out = torch.zeros_like(q)
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        for a in range(len(q)):
            readable = [t for t in range(len(k)) if may(a, t)]
            scores = torch.stack([q[a, part] @ k[t, part] / math.sqrt(size) for t in readable])
            weights = torch.exp(scores - scores.max())
            out[a, part] = sum(x * v[t, part] for x, t in zip(weights / weights.sum(), readable, strict=True))
    return out


def blocks(x, w, prefix, config, layers, may):
    for i in range(layers):
        p = f"{prefix}.{i}"
        y = norm(x, w, f"{p}.norm1", config.norm_eps)
        q, k, v = linear(y, w, f"{p}.attention.qkv").chunk(3, dim=-1)
        x = x + linear(attend(q, k, v, config.heads, may), w, f"{p}.attention.out")
        y = norm(x, w, f"{p}.norm2", config.norm_eps)
        x = x + linear(ACTIVATIONS[config.activation](linear(y, w, f"{p}.mlp.up")), w, f"{p}.mlp.down")
    return x


def image(config, w, pixels, keep=None):
    """One image (3, S, S) -> mean before normalisation, log_var or None."""
    b, p = config.blocks, config.patch_size
    patches = [
        pixels[:, r * p : (r + 1) * p, c * p : (c + 1) * p].reshape(-1)
        for r in range(config.grid)
        for c in range(config.grid)
    ]
    tokens = []
    for name in ("class_token", "uncertainty_token"):
        if name in w:
            tokens.append(w[name] + w["positions"][len(tokens)])
    added = len(tokens)
    for j in range(len(patches)) if keep is None else keep.tolist():
        token = linear(patches[j], w, "stem.0")
        if config.stem == "mlp":
            token = linear(ACTIVATIONS["gelu"](token), w, "stem.2")
        tokens.append(token + w["positions"][added + j])
    x = torch.stack(tokens)
    if config.pre_norm:
        x = norm(x, w, "norm_pre", b.norm_eps)
    x = blocks(x, w, "blocks", b, b.layers, lambda a, t: True)
    if config.pooling == "attention":
        x = norm(x, w, "norm_post", b.norm_eps)
        k, v = linear(x, w, "pool.kv").chunk(2, dim=-1)
        y = attend(linear(w["pool.probe"][None], w, "pool.q"), k, v, b.heads, lambda a, t: True)
        y = linear(y, w, "pool.out")[0]
        z = norm(y, w, "pool.norm", b.norm_eps)
        y = y + linear(ACTIVATIONS[b.activation](linear(z, w, "pool.mlp.up")), w, "pool.mlp.down")
        return (linear(y, w, "mean") if config.projection else y), None
    y = norm(x, w, "norm_post", b.norm_eps)
    pooled = norm(y[0], w, "norm_post", b.norm_eps) if config.class_norm == "twice" else y[0]
    mean = linear(pooled, w, "mean")
    if config.uncertainty == "token":
        return mean, linear(y[1], w, "log_var")
    if config.uncertainty == "multihead":
        x = blocks(x, w, "multihead", b, 2, lambda a, t: True)
        return mean, linear(norm(x[0], w, "norm_post", b.norm_eps), w, "mean")
    return mean, None


def text(config, w, ids):
    """One text (T,) -> mean before normalisation, log_var or None."""
    b, tokens = config.blocks, config.tokenizer
    ids = ids.tolist()
    x = [w["tokens.weight"][i] + w["positions"][t] for t, i in enumerate(ids)]
    names = [name for name in ("uncertainty_token", "class_token") if name in w]
    first = tokens.context_length if config.padding == "masked" else len(ids)
    x += [w[name] + w["positions"][first + n] for n, name in enumerate(names)]

    def may(a, t):
        padded = config.padding == "masked" and t < len(ids) and ids[t] == tokens.pad_id
        return (not padded or (config.causal and a == t)) and (not config.causal or t <= a)

    x = blocks(torch.stack(x), w, "blocks", b, b.layers, may)
    y = norm(x, w, "norm_post", b.norm_eps)
    pooled = y[ids.index(tokens.end_id)] if config.pooling == "end" else y[-1]
    mean = linear(pooled, w, "mean") if config.projection else pooled
    if config.uncertainty == "token":
        return mean, linear(y[-2], w, "log_var")
    if config.uncertainty == "mean":
        return mean, linear(mean, w, "log_var")
    if config.uncertainty == "multihead":
        x = blocks(x, w, "multihead", b, 2, may)
        return mean, linear(norm(x[-1], w, "norm_post", b.norm_eps), w, "mean")
    return mean, None
