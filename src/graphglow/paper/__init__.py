"""The paper's structure learner (Eq. 9-12), its objective (Eq. 13-18) and its algorithms."""
