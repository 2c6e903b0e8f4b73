"""The eight shapes as signed distance functions, and their antialiased rasterization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from PIL import Image

OUTLINE = 0.22  # width of a drawn outline, as a fraction of the radius
BLOB_FADE = 0.7  # width of the fading edge of a blob, as a fraction of the radius
Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A signed distance function: x and y -> distance from the outline, negative inside; arrays of one shape, in radii."""


@lru_cache(maxsize=4096)
def rasterize_shape(shape: str, radius: float, angle: float, outlined: bool) -> Image.Image:
    """Rasterize a shape: the coverage of each pixel, 0 to 255; the edge is a ramp one pixel wide.

    Args:
        shape: A key of DISTANCES.
        radius: Radius of the shape in pixels.
        angle: Rotation in radians.
        outlined: Draw only the outline.

    Returns:
        A square image of mode L with the shape in its center.
    """
    side = math.ceil(2 * radius) + 1
    positions = (np.arange(side) - (side - 1) / 2) / radius
    y, x = np.meshgrid(positions, positions, indexing="ij")
    cos, sin = math.cos(angle), math.sin(angle)
    # pixels from the outline, inwards
    depth = -DISTANCES[shape](cos * x + sin * y, cos * y - sin * x) * radius
    cover = np.clip(depth + 0.5, 0, 1)
    if outlined:  # an outline is at least 1.5 pixels wide
        cover *= np.clip(max(1.5, OUTLINE * radius) - depth + 0.5, 0, 1)
    return Image.fromarray(np.rint(cover * 255).astype(np.uint8))


@lru_cache(maxsize=1024)
def rasterize_blob(radius: float, outlined: bool) -> Image.Image:
    """Rasterize a blob, a disk that fades towards its edge, unlike any shape.

    Args:
        radius: Radius in pixels, at which nothing is left.
        outlined: Draw a ring that fades to both sides.

    Returns:
        A square image of mode L, as large as that of a shape of the same radius.
    """
    side = math.ceil(2 * radius) + 1
    positions = (np.arange(side) - (side - 1) / 2) / radius
    distance = np.hypot(positions[:, None], positions[None, :])  # from the center, in radii
    cover = 1 - np.abs(distance - 0.7) / 0.3 if outlined else (1 - distance) / BLOB_FADE
    return Image.fromarray(np.rint(np.clip(cover, 0, 1) * 255).astype(np.uint8))


def _make_polygon_distance(points: list[tuple[float, float]]) -> Distance:
    """Make the signed distance function of a closed polygon, negative inside. points: its corners, in order."""
    corners = np.array(points)
    edges = np.roll(corners, -1, axis=0) - corners  # from each corner to the next

    def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Signed distance to the nearest edge.

        A point is inside, and its distance negative, if a ray to the right crosses an odd number of edges.
        """
        nearest = np.full(x.shape, np.inf)  # squared distance
        inside = np.zeros(x.shape, dtype=bool)
        for (x0, y0), (dx, dy) in zip(corners, edges, strict=True):
            # the nearest point of the edge, as a fraction of its length
            along = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0, 1)
            nearest = np.minimum(nearest, (x - x0 - along * dx) ** 2 + (y - y0 - along * dy) ** 2)
            crosses = (y0 > y) != (y0 + dy > y)
            if dy:
                inside ^= crosses & (x < x0 + (y - y0) / dy * dx)
        signed: np.ndarray = np.where(inside, -1.0, 1.0) * np.sqrt(nearest)
        return signed

    return distance


def _circle_distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Signed distance to a disk."""
    distance: np.ndarray = np.hypot(x, y) - 0.93
    return distance


def _ring_distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Signed distance to a ring."""
    distance: np.ndarray = np.abs(np.hypot(x, y) - 0.70) - 0.24
    return distance


def _crescent_distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Signed distance to a disk without a second disk, which lies to the right."""
    distance: np.ndarray = np.maximum(np.hypot(x, y) - 0.96, 0.82 - np.hypot(x - 0.5, y))
    return distance


def _star_points(tips: int, outer: float, inner: float) -> list[tuple[float, float]]:
    """Corners of a star, by turns at the radius `outer` (the tips) and `inner`; the first tip points up."""
    corners = [(math.pi * i / tips, outer if i % 2 == 0 else inner) for i in range(2 * tips)]
    return [(radius * math.sin(angle), -radius * math.cos(angle)) for angle, radius in corners]


def _cross_points(arm: float, half: float) -> list[tuple[float, float]]:
    """The 12 corners of a cross. arm: length of an arm from the center; half: half of its width."""
    corner = [(half, arm), (half, half), (arm, half)]  # of one quadrant; the others are its mirror images
    return [
        *[(x, y) for x, y in corner],
        *[(x, -y) for x, y in reversed(corner)],
        *[(-x, -y) for x, y in corner],
        *[(-x, y) for x, y in reversed(corner)],
    ]


def _heart_points(count: int) -> list[tuple[float, float]]:
    """`count` points of a heart curve, a polygon close to it."""
    turns = [2 * math.pi * i / count for i in range(count)]
    return [
        (
            math.sin(t) ** 3 * 0.96,
            -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 17 - 0.1,
        )
        for t in turns
    ]


DISTANCES: Mapping[str, Distance] = {
    "circle": _circle_distance,
    "ring": _ring_distance,
    "crescent": _crescent_distance,
    "heart": _make_polygon_distance(_heart_points(40)),
    "square": _make_polygon_distance([(-0.78, -0.78), (0.78, -0.78), (0.78, 0.78), (-0.78, 0.78)]),
    "triangle": _make_polygon_distance([(0, -0.98), (0.92, 0.72), (-0.92, 0.72)]),
    "star": _make_polygon_distance(_star_points(5, 1.0, 0.42)),
    "cross": _make_polygon_distance(_cross_points(0.96, 0.3)),
}
"""Shape -> its signed distance function. Coordinates are in radii, y points down; no shape leaves the unit circle by
more than a corner of the square."""
