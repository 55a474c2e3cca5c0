"""The user's code as it travels: the project's root, one deterministic archive, and its unpacking."""

from kinetic_ray.bundle.placing import hand_over, place, unpack
from kinetic_ray.bundle.project import Bundle, Project, Selection, find_project, find_root

__all__ = ["Bundle", "Project", "Selection", "find_project", "find_root", "hand_over", "place", "unpack"]
