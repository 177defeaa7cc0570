"""Observers: several observers of the same backward."""

from simdist.nn import Layer, Observer, Parameter

__all__ = ["Observers"]


class Observers(Observer):
    """Passes every call of a backward to each observer, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def before_backward(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.before_backward(layer)

    def after_backward(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.after_backward(layer)

    def before_gradients(self, layer: Layer) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.before_gradients(layer)

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """See Observer."""
        for observer in self._observers:
            observer.gradients_complete(parameters)
