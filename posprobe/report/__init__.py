"""An analysis becomes a bundle: JSON, arrays, figures and a page. Imported on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
