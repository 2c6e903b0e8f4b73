"""Worlds that tests go through: the named two, a grid of three, and one with pairs held out."""

from dataclasses import replace

from prolip.scenes.world import BACKGROUNDS, HARD, SIMPLE, STYLED, VARIED, World, get_unseen_pairs

GRID_OF_THREE = World(counts=(0.2, 0.3, 0.5), grid=3, backgrounds=BACKGROUNDS[:3], styles=HARD.styles)
HELD_OUT = replace(HARD, unseen=frozenset({("red", "circle"), ("blue", "star"), ("pink", "heart")}))
VARIED_HELD_OUT = replace(VARIED, unseen=get_unseen_pairs(8))
WORLDS = {
    "simple": SIMPLE,
    "hard": HARD,
    "grid of three": GRID_OF_THREE,
    "held out": HELD_OUT,
    "varied": VARIED,
    "varied held out": VARIED_HELD_OUT,
    "styled": STYLED,
}
