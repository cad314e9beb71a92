"""nn.Module: containers, hooks, parametrizations, lazy attributes, shared parameters, state."""

import torch
from torch import nn

from tests.capture.programs.table import program, x


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@program(lambda: (net(), x()), operators=3)
def sequential(model, x):
    return model(x)


@program(lambda: (nn.ModuleList([nn.Linear(3, 3) for _ in range(3)]), x()))
def module_list(layers, x):
    for i, layer in enumerate(layers):
        x = layer(x) * i
    return layers[-1](x), len(layers), [type(m).__name__ for m in layers[:2]]


@program(lambda: (nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()}), x()))
def module_dict(layers, x):
    for name, layer in layers.items():
        x = layer(x)
    return layers["a"](x), "b" in layers, list(layers.keys())


@program(lambda: (nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))]), x()))
def parameter_list(weights, x):
    return sum(w * x for w in weights), len(weights)


@program(lambda: (nn.ParameterDict({"w": nn.Parameter(torch.ones(3))}), x()))
def parameter_dict(weights, x):
    return x * weights["w"], list(weights)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.scale = 2.0
        self.calls = 0

    def forward(self, x, *, shift=0.0):
        self.calls += 1
        return self.linear(x) * self.scale + self.mean + shift


@program(lambda: (Block(), x()))
def attributes_and_keywords(block, x):
    return block(x, shift=1.0), block.calls, block.training


@program(lambda: (Block(), x()))
def buffer_replaced(block, x):
    block.mean = block.mean + x.mean(0)
    return block(x)


@program(lambda: (Block(), x()))
def buffer_changed_in_place(block, x):
    block.mean.add_(x.mean(0).detach())
    return block(x)


@program(lambda: (nn.BatchNorm1d(3), torch.randn(4, 3)))
def batch_norm_training(norm, x):
    return norm(x), norm.num_batches_tracked


@program(lambda: (nn.BatchNorm1d(3).eval(), torch.randn(4, 3)))
def batch_norm_eval(norm, x):
    return norm(x)


@program(lambda: (nn.Dropout(0.5).eval(), x()))
def dropout_eval(drop, x):
    return drop(x)


@program(lambda: (nn.Dropout(0.5), torch.randn(50)))
def dropout_training(drop, x):
    return drop(x)


@program(lambda: (Block(), x()))
def train_and_eval_inside(block, x):
    block.eval()
    a = block(x)
    block.train()
    return a, block.training


def hooked(kind, hook):
    block = Block()
    getattr(block, kind)(hook)
    return block


@program(lambda: (hooked("register_forward_hook", lambda m, args, out: out * 2), x()))
def forward_hook(block, x):
    return block(x)


@program(lambda: (hooked("register_forward_pre_hook", lambda m, args: (args[0] + 1,)), x()))
def forward_pre_hook(block, x):
    return block(x)


SEEN = []


@program(lambda: (hooked("register_forward_hook", lambda m, args, out: SEEN.append(out.shape)), x()))
def forward_hook_with_effect(block, x):
    return block(x)


@program(
    lambda: (hooked("register_full_backward_hook", lambda m, gi, go: None), x()), breaks="a backward hook of a module"
)
def backward_hook(block, x):
    return block(x)


@program(lambda: (Block(), x()), breaks="hooks are registered")
def hook_registered_inside(block, x):
    handle = block.register_forward_hook(lambda m, args, out: out + 1)
    y = block(x)
    handle.remove()
    return y


def normed():
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))


@program(lambda: (normed(), x()))
def weight_norm(layer, x):
    return layer(x)


@program(lambda: (nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), x()))
def orthogonal(layer, x):
    return layer(x)


class Doubling(nn.Module):
    def forward(self, w):
        return w * 2


def parametrized():
    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Doubling())
    return layer


@program(lambda: (parametrized(), x()))
def parametrization(layer, x):
    return layer(x), layer.weight.shape


@program(lambda: (parametrized(), x()))
def parametrization_cached(layer, x):
    with nn.utils.parametrize.cached():
        return layer(x) + layer(x)


@program(lambda: (nn.utils.spectral_norm(nn.Linear(3, 3)).eval(), x()))
def spectral_norm_by_hook(layer, x):
    return layer(x)


class LazyTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(float(x.shape[1]))
        return x + self.table


@program(lambda: (LazyTable(), x()))
def lazily_made_attribute(module, x):
    return module(x)


class Caching(nn.Module):
    def forward(self, x):
        if not hasattr(self, "seen"):
            self.seen = []
        self.seen.append(x * 2)
        return self.seen[-1]


@program(lambda: (Caching(), x()))
def attribute_made_on_first_use(module, x):
    return module(x)


@program(lambda: (nn.LazyLinear(4), x()), breaks="parameters are made on the first call")
def lazy_linear(layer, x):
    return layer(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.again = self.head

    def forward(self, ids):
        return self.head(self.embed(ids)) + self.again(self.embed(ids))


@program(lambda: (Tied(), torch.tensor([0, 3])))
def shared_parameters(model, ids):
    return model(ids)


@program(lambda: (net(), x()))
def same_module_twice(model, x):
    return model[2](model[0](x)) + model[2](torch.relu(model[0](x)))


@program(lambda: (net(), x()))
def walk_over_parameters(model, x):
    total = sum(p.sum() for p in model.parameters())
    names = [name for name, _ in model.named_parameters()]
    return model(x) + total, names


@program(lambda: (net(), x()))
def walk_over_modules(model, x):
    kinds = [type(m).__name__ for m in model.modules()]
    return model(x), kinds, [n for n, _ in model.named_children()], len(list(model.children()))


@program(lambda: (Block(), x()))
def state_of_a_module(block, x):
    return (
        block(x),
        sorted(block.state_dict()),
        [n for n, _ in block.named_buffers()],
        block.get_parameter("linear.bias").shape,
    )


@program(lambda: (net(), x()))
def function_of_parameters(model, x):
    return model(x) + 0.01 * sum(p.pow(2).sum() for p in model.parameters() if p.requires_grad)


@program()
def module_made_inside(x):
    relu = nn.ReLU()
    return relu(x), nn.Identity()(x), nn.Flatten()(x)


@program(lambda: (Block(), x()))
def module_attribute_set(block, x):
    block.scale = block.scale * 1.5
    block.extra = x.detach() + 1
    return block(x)


@program(lambda: (net(), x()))
def requires_grad_read(model, x):
    frozen = [p.requires_grad for p in model.parameters()]
    return model(x), frozen


@program(lambda: (nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)))
def lstm(model, x):
    out, (h, c) = model(x)
    return out, h, c


@program(lambda: (nn.GRU(3, 4, num_layers=2), torch.randn(5, 2, 3)))
def gru(model, x):
    return model(x)


@program(lambda: (nn.RNN(3, 4, bidirectional=True), torch.randn(5, 2, 3)))
def rnn(model, x):
    return model(x)


@program(lambda: (nn.LSTMCell(3, 4), x()))
def lstm_cell(cell, x):
    h, c = cell(x)
    return cell(x, (h, c))


@program(lambda: (nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 5, 4)))
def multihead_attention(model, x):
    return model(x, x, x)


@program(lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), torch.randn(2, 5, 4)))
def transformer_layer(model, x):
    return model(x)


@program(lambda: (nn.EmbeddingBag(10, 3, mode="mean"), torch.tensor([[1, 2], [4, 5]])))
def embedding_bag(bag, ids):
    return bag(ids)


@program(lambda: (nn.Embedding(10, 3, padding_idx=0), torch.tensor([[0, 2], [4, 5]])))
def embedding(table, ids):
    return table(ids)


@program(
    lambda: (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.MaxPool2d(2)), torch.randn(1, 1, 4, 4))
)
def convolution(model, x):
    return model(x)


@program(lambda: (nn.CrossEntropyLoss(), torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])))
def loss(criterion, logits, target):
    return criterion(logits, target)


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(2):
            setattr(self, f"layer{i}", nn.Linear(3, 3))

    def forward(self, x):
        for i in range(2):
            x = getattr(self, f"layer{i}")(x)
        return x

    def __getattr__(self, name):
        if name == "virtual":
            return 2.0
        return super().__getattr__(name)


@program(lambda: (Dynamic(), x()))
def dynamic_attributes(model, x):
    return model(x) * model.virtual


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.w


class Derived(Base):
    def forward(self, x):
        return super().forward(x) + 1

    @property
    def doubled(self):
        return self.w * 2


@program(lambda: (Derived(), x()))
def inherited_forward(model, x):
    return model(x) + model.doubled


@program(lambda: (net(), x()))
def functional_call(model, x):
    params = {name: p * 2 for name, p in model.named_parameters()}
    return torch.func.functional_call(model, params, (x,))


@program(lambda: (Block(), x()))
def apply_function(block, x):
    names = []
    block.apply(lambda m: names.append(type(m).__name__))
    return block(x), names


@program(lambda: (net(), x()))
def zero_grad(model, x):
    model.zero_grad()
    return model(x)


@program(lambda: (net(), x()))
def repr_of_class(model, x):
    return model(x), model.__class__.__name__, model[0].in_features, model[0].extra_repr()


class MadeLater(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer: torch.nn.Module | None = None

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        if self.layer is None:
            self.layer = torch.nn.Linear(3, 3)
        return self.layer(y)


@program(lambda: (MadeLater(), x()), breaks="the first call makes parameters")
def module_in_place_of_none(model, y):
    return model(y)


@program(lambda: (net(), x()))
def state_made_and_read(model, x):
    state = model.state_dict()
    return x @ state["0.weight"].T, list(state), state, state._metadata["2"]["version"]


@program(lambda: (net(), net().state_dict(), x()))
def state_given(model, state, x):
    return x @ state["0.weight"].T, sorted(state._metadata), getattr(state, "_other", 3)


class Setting(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = 1.0

    @property
    def scale(self):
        return self.kept

    @scale.setter
    def scale(self, value):
        self.kept = value * 2

    def forward(self, x):
        self.scale = 3.0
        return x * self.scale


@program(lambda: (Setting(), x()))
def property_with_setter(module, x):
    return module(x)


class Growing(nn.Module):
    def forward(self, x):
        if not hasattr(self, "ones"):
            self.register_buffer("ones", torch.ones(3))
            self.add_module("act", nn.ReLU())
            setattr(self, "factor", 4)  # noqa: B010
        return self.act(x) * self.ones * self.factor


@program(lambda: (Growing(), x()))
def parts_registered_inside(module, x):
    return module(x)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        self.steps += 1
        return self.layer(x)


@program(lambda: (Counting(), x()))
def calls_counted(module, x):
    return module(x)


def transformer():
    return nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)


@program(lambda: (transformer(), torch.randn(1, 3, 4), torch.randn(1, 2, 4)))
def whole_transformer(model, source, target):
    return model(source, target)


@program(
    lambda: (transformer().eval(), torch.randn(1, 3, 4), torch.randn(1, 2, 4)),
    breaks="a fused layer that has no shape function before 2.13",
)
def whole_transformer_in_inference(model, source, target):
    with torch.no_grad():
        return model(source, target)


@program(lambda: (nn.LSTM(3, 4, 2, bidirectional=True), torch.randn(5, 2, 3), torch.randn(2, 4, 2, 4)))
def lstm_with_states(model, x, states):
    output, (hidden, cell) = model(x, (states[0], states[1]))
    return output, hidden, cell


@program(lambda: (nn.EmbeddingBag(5, 3, mode="max"), torch.tensor([0, 1, 4]), torch.tensor([0, 2])))
def embedding_bag_with_offsets(bag, ids, offsets):
    return bag(ids, offsets)
