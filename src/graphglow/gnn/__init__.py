"""Graph-specific GNNs: message passing over mixed structures (Alg. 1), backbones, training."""
