"""Parts: the pieces that a GPT is built from."""

from simdist.arrays import Array
from simdist.nn.layers import (
    Attention,
    Dropout,
    Exchange,
    Experts,
    Fork,
    Gelu,
    LatentHeads,
    Layer,
    LayerNorm,
    Linear,
    QKNorm,
    Recompute,
    RMSNorm,
    Rotary,
    Sequence,
    Sum,
    SwiGLU,
    TextEmbedding,
    TiedLinear,
)
from simdist.nn.loss import CrossEntropy, Loss
from simdist.nn.parameters import Parameter
from simdist.nn.shape import Shape

__all__ = ["Parts", "attention_layer", "mixture"]


class Parts:
    """Makes each piece of a GPT, here for a process that holds the whole model.

    `gpt` determines the order and the names of the pieces; a subclass that distributes a model over ranks overrides
    the methods that make them, so a GPT is described only once. Names and sizes are those of the whole model; a
    parameter that is only a part has its `Place` in the whole.

        x           | embedding, norm, dropout                 the stream (the residual stream)
        inner       |     column -> attention or gelu -> row   inside of a block: some of the heads, or of the hidden
                    |                                          features, if ranks share them
        x           | logits -> loss
    """

    def check(self, shape: Shape) -> None:
        """Raise ArgumentError, which says what would be possible, if these pieces cannot make this shape."""

    def padded(self, tokens: Array, shape: Shape) -> Array:
        """Texts, shape (n, t), padded at their end if these pieces cannot take texts of t tokens."""
        return tokens

    def embedding(self, name: str, vocabulary: int, places: int, width: int, std: float) -> Layer:
        """(n, t) integers, all tokens of each text, to the stream; with 0 places there are no position vectors."""
        return TextEmbedding(name, vocabulary, places, width, std)

    def dropout(self, name: str, share: float) -> Layer:
        """On the stream."""
        return Dropout(name, share)

    def on_stream(self, layer: Layer) -> Layer:
        """A layer of your own, on the stream: see `simdist.parallel.parts.MeshParts`."""
        return layer

    def norm(self, name: str, width: int) -> Layer:
        """On the stream."""
        return self.on_stream(LayerNorm(name, width))

    def rms_norm(self, name: str, width: int) -> Layer:
        """On the stream."""
        return self.on_stream(RMSNorm(name, width))

    def column(
        self, name: str, in_features: int, out_features: int | tuple[int, int], std: float, bias: bool = True
    ) -> Layer:
        """From the stream to the inside of a block; its columns may be cut, of two maps those of each."""
        return Linear(name, in_features, out_features, std=std, bias=bias)

    def row(self, name: str, in_features: int, out_features: int, std: float, bias: bool = True) -> Layer:
        """From the inside of a block to the stream; its rows may be cut."""
        return Linear(name, in_features, out_features, std=std, bias=bias)

    def latent(self, name: str, width: int, features: int, std: float) -> Layer:
        """From the stream to a latent vector, to which the same `rms_norm` and `column` apply as to the stream."""
        return self.on_stream(Linear(name, width, features, std=std, bias=False))

    def of_all_heads(self, name: str, width: int, features: int, std: float) -> Layer:
        """From the stream to features inside of a block that all heads share; its columns are not cut."""
        return Linear(name, width, features, std=std, bias=False)

    def heads(self, name: str, shape: Shape, std: float) -> Layer:
        """From the stream to queries, keys and values, group by group; in latent attention from latent vectors.

            stream --> down -> norm -> up ---> queries, whose last features RoPE rotates --+
                   |-> down -> norm -> up ---> keys and values of each head ---------------+--> latent_heads
                   |-> of_all_heads ---------> further features of all keys, to rotate ----+

        Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, section 2.1.
        """
        h, q = shape.width, shape.query_width
        if shape.kv_latent_width is None:
            return self.column(f"{name}.qkv", h, q + shape.key_value_width, std, shape.qkv_bias or not shape.is_llama)
        queries = self.column(f"{name}.q.up", shape.query_latent_width or h, q, std, bias=False)
        if shape.query_latent_width is not None:
            queries = self._from_latent(f"{name}.q", shape.query_latent_width, queries, shape, std)
        up = self.column(f"{name}.kv.up", shape.kv_latent_width, 2 * shape.attention_width, std, bias=False)
        keys_values = self._from_latent(f"{name}.kv", shape.kv_latent_width, up, shape, std)
        rotary_key = self.of_all_heads(f"{name}.rotary_key", h, shape.rotary_features, std)
        return Sequence([Fork([queries, keys_values, rotary_key]), self.latent_heads(shape)])

    def _from_latent(self, name: str, features: int, up: Layer, shape: Shape, std: float) -> Layer:
        """From the stream by way of a latent vector of this many features, which `up` takes."""
        down = self.latent(f"{name}.down", shape.width, features, std)
        return Sequence([down, self.rms_norm(f"{name}.norm", features), up])

    def latent_heads(self, shape: Shape) -> Layer:
        """Inside of a block, from these three side by side to queries, keys and values, head by head."""
        return LatentHeads(shape.heads, shape.value_features, shape.rotary_features)

    def qk_norm(self, name: str, shape: Shape) -> Layer:
        """Inside of a block, on queries, keys and values, group by group."""
        return QKNorm(name, shape.heads, shape.num_kv_heads, shape.head_features)

    def rotary(self, shape: Shape) -> Layer:
        """Inside of a block, on the same, after `qk_norm`."""
        return Rotary(
            shape.heads,
            groups=shape.num_kv_heads,
            base=shape.rope_base,
            value_width=shape.value_features,
            rotary_features=shape.rotary_features,
        )

    def attention(self, name: str, shape: Shape) -> Layer:
        """Inside of a block, from queries, keys and values, group by group."""
        return attention_layer(
            name,
            shape.heads,
            shape.dropout,
            groups=shape.num_kv_heads,
            recompute=shape.recompute == "selective",
            flash=shape.flash,
            value_width=shape.value_features,
        )

    def perceptron(self, name: str, shape: Shape, std: float, residual_std: float) -> Layer:
        """The MLP of a block, from the stream to the stream, without its norm."""
        if not shape.experts:
            return self.mlp(name, shape, shape.ffn_features, std, residual_std)
        experts = self.experts(f"{name}.experts", shape, std, residual_std)
        if not shape.shared_features:
            return experts
        return Sum([experts, self.mlp(f"{name}.shared", shape, shape.shared_features, std, residual_std)])

    def mlp(self, name: str, shape: Shape, inside: int, std: float, residual_std: float) -> Layer:
        """An MLP with this many features inside."""
        h, gated = shape.width, shape.is_llama
        return Sequence(
            [
                self.column(f"{name}.hidden", h, (2, inside) if gated else inside, std, bias=not gated),
                SwiGLU() if gated else Gelu(),
                self.row(f"{name}.thought", inside, h, residual_std, bias=not gated),
            ]
        )

    def experts(self, name: str, shape: Shape, std: float, residual_std: float) -> Layer:
        """A mixture of experts in place of the MLP: see `Experts`."""
        return mixture(name, shape, std, residual_std)

    def logits(self, name: str, width: int, vocabulary: int, std: float) -> Layer:
        """From the stream to the input of `loss`."""
        return Linear(name, width, vocabulary, std=std, bias=False)

    def tied_logits(self, table: Parameter) -> Layer:
        """The same with the embedding's table of tokens, the first parameter of that layer."""
        return TiedLinear(table)

    def loss(self) -> Loss:
        """Of the logits."""
        return CrossEntropy()


def attention_layer(
    name: str,
    heads: int,
    dropout: float,
    first_head: int = 0,
    *,
    groups: int | None = None,
    recompute: bool = False,
    flash: bool = False,
    value_width: int | None = None,
) -> Layer:
    """The attention of a block: see `Attention`.

    Args:
        recompute: whether backward recomputes its activations instead of keeping them.
        flash: whether it works tile by tile; it then recomputes its scores anyway, and `recompute` has no effect.
    """
    layer = Attention(name, heads, dropout, first_head, groups, flash, value_width=value_width)
    return Recompute(layer) if recompute and not flash else layer


def mixture(
    name: str,
    shape: Shape,
    std: float,
    residual_std: float,
    exchange: Exchange | None = None,
    perceptrons: Layer | None = None,
) -> Experts:
    """The `Experts` of a GPT of this shape; the defaults are for one process."""
    return Experts(
        name,
        shape.width,
        shape.ffn_features,
        shape.experts,
        top_k=shape.top_k,
        capacity_factor=shape.capacity_factor,
        alpha=shape.alpha,
        group=shape.group or shape.context,
        std=std,
        residual_std=residual_std,
        exchange=exchange,
        perceptrons=perceptrons,
        gated=shape.is_llama,
    )
