import logging

import pytest
import shared_steps


@pytest.fixture(scope="module")
def cluster():
    """A Ray of two CPUs, to which the tests of a file are connected."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL
    )
    ray.cloudpickle.register_pickle_by_value(shared_steps)  # or workers could not import it
    try:
        yield ray
    finally:
        ray.cloudpickle.unregister_pickle_by_value(shared_steps)
        ray.shutdown()
