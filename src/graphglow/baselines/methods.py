"""The table of methods: a competitor is a line here, and the doors and the tests walk it.

What is known of a method, its search space among it, stands beside its code.
"""

from graphglow.baselines import cpgnn, idgl, idgl_anchor, lds, link, linkx, mlp, vgcn
from graphglow.baselines.gnns import PURE_GNNS
from graphglow.baselines.method import Method
from graphglow.baselines.variants import VARIANTS

METHODS: dict[str, Method] = {
    **PURE_GNNS,
    "cpgnn": cpgnn.METHOD,
    "mlp": mlp.METHOD,
    "link": link.METHOD,
    "link-features": link.METHOD_WITH_FEATURES,
    "linkx": linkx.METHOD,
    "lds": lds.METHOD,
    "idgl": idgl.METHOD,
    "idgl-anchor": idgl_anchor.METHOD,
    "vgcn": vgcn.METHOD,
    **VARIANTS,
}
