"""Class loaders of the driver's threads, to which `use` adds the plugin's jar.

`_jvm` calls this, and hands over the virtual machine.
"""

from __future__ import annotations

import threading
from typing import Any

# The class loader with the plugin's jar, where `use` has added it to a running application.
_loader: Any = None
# The one that this thread has been shown.
_shown = threading.local()


def add(jvm: Any, jar: str) -> bool:  # noqa: ANN401 - as the gateway has it
    """Add a jar to the driver's class path, where spark-submit has left a loader that takes it.

    All threads of the driver share that loader, those among them that read what failed tasks send.

    Parameters
    ----------
    jvm : JVMView
        The virtual machine.
    jar : str
        A path on this machine, where the driver runs as well.

    Returns
    -------
    bool
        Whether the driver's threads have the jar now.
    """
    loader = _thread(jvm).getContextClassLoader()
    if not loader.getClass().getName().endswith(".MutableURLClassLoader"):
        return False
    loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    return True


def keep(jvm: Any) -> None:  # noqa: ANN401
    """Keep the class loader of this thread, which has just added the plugin's jar to a session."""
    global _loader
    _loader = _thread(jvm).getContextClassLoader()


def is_shown() -> bool:
    """Tell whether this thread sees the jar that another has added."""
    return getattr(_shown, "loader", None) is _loader


def show(jvm: Any) -> None:  # noqa: ANN401
    """Let this thread see a jar that another has added to a running session.

    Each thread of Python has one of the virtual machine, and Spark adds a jar to the class loader
    of the one that asks for it.
    """
    _thread(jvm).setContextClassLoader(_loader)
    _shown.loader = _loader


def _thread(jvm: Any) -> Any:  # noqa: ANN401
    return jvm.java.lang.Thread.currentThread()
