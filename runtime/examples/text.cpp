// SPDX-License-Identifier: Apache-2.0
// A small character-level transformer in four blocks. Pre-norm layers with causal attention, written out: the fused ones
// of LibTorch differ between its releases.
#include "runtime/examples/corpus.hpp"
#include "runtime/examples/shard.hpp"
#include "runtime/examples/task.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>

namespace jigsaw::examples {

namespace {

namespace nn = ::torch::nn;

constexpr std::int64_t kContext = 64; ///< characters seen at once
constexpr std::int64_t kHeadWidth = 32;
constexpr std::size_t kValidationShare = 20; ///< the last 1/20 of the text is kept for the score
constexpr std::int64_t kValidationWindows = 128;

/// One layer, with the embedding before it in the first block and the output after it in the last one.
struct LayerImpl : nn::Module {
    LayerImpl(std::int64_t width, std::int64_t letters, bool is_first, bool is_last)
        : heads(std::max<std::int64_t>(1, width / kHeadWidth)), norm1(nn::LayerNormOptions({width})),
          norm2(nn::LayerNormOptions({width})), qkv(width, 3 * width), join(width, width), up(width, 4 * width),
          down(4 * width, width)
    {
        if (is_first) {
            letter = register_module("letter", nn::Embedding(letters, width));
            position = register_parameter("position", ::torch::randn({kContext, width}) * 0.02);
        }
        register_module("norm1", norm1);
        register_module("qkv", qkv);
        register_module("join", join);
        register_module("norm2", norm2);
        register_module("up", up);
        register_module("down", down);
        if (is_last) {
            norm_out = register_module("norm_out", nn::LayerNorm(nn::LayerNormOptions({width})));
            out = register_module("out", nn::Linear(width, letters));
        }
        mask = register_buffer("mask", ::torch::full({kContext, kContext}, -1e9).triu(1));
    }
    at::Tensor attend(const at::Tensor &x)
    {
        const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
        const std::vector<at::Tensor> parts =
            qkv->forward(x).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
        const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads));
        const at::Tensor weights = ((parts[0] * scale).matmul(parts[1].transpose(-2, -1)) + mask).softmax(-1);
        return join->forward(weights.matmul(parts[2]).transpose(1, 2).reshape({batch, length, width}));
    }
    at::Tensor forward(at::Tensor x)
    {
        if (letter)
            x = letter->forward(x) + position;
        x = x + attend(norm1->forward(x));
        x = x + down->forward(up->forward(norm2->forward(x)).relu());
        return out ? out->forward(norm_out->forward(x)) : x;
    }
    std::int64_t heads;
    nn::Embedding letter{nullptr};
    at::Tensor position, mask;
    nn::LayerNorm norm1, norm2, norm_out{nullptr};
    nn::Linear qkv, join, up, down, out{nullptr};
};
TORCH_MODULE(Layer);

struct TextNet : nn::Module {
    TextNet(std::int64_t width, std::int64_t letters)
    {
        constexpr int kLayers = 4;
        for (int i = 0; i < kLayers; ++i)
            layers.push_back(register_module("layer" + std::to_string(i),
                                             Layer(width, letters, i == 0, i == kLayers - 1)));
    }
    at::Tensor forward(at::Tensor x)
    {
        for (Layer &layer : layers)
            x = layer->forward(x);
        return x;
    }
    std::vector<Layer> layers;
};

class Text : public Task {
  public:
    explicit Text(const Options &options)
        : options_(options), corpus_(read_corpus(options.data)),
          letters_(::torch::from_blob(corpus_.letters.data(), {static_cast<std::int64_t>(corpus_.letters.size())}, at::kByte)
                       .to(at::kLong)),
          train_(letters_.size(0) - letters_.size(0) / static_cast<std::int64_t>(kValidationShare)),
          net_(std::make_shared<TextNet>(rounded(options.width), static_cast<std::int64_t>(corpus_.alphabet.size())))
    {
    }
    nn::Module &module() override { return *net_; }
    std::vector<std::shared_ptr<nn::Module>> blocks() override
    {
        std::vector<std::shared_ptr<nn::Module>> out;
        for (Layer &layer : net_->layers)
            out.push_back(layer.ptr());
        return out;
    }
    at::Tensor loss(std::uint64_t iteration, int rank, int world_size) override
    {
        std::vector<std::int64_t> starts;
        const std::uint64_t stream = mix(options_.seed, iteration * static_cast<std::uint64_t>(world_size) +
                                                            static_cast<std::uint64_t>(rank));
        for (std::uint32_t i = 0; i < options_.batch; ++i)
            starts.push_back(static_cast<std::int64_t>(mix(stream, i) % static_cast<std::uint64_t>(train_ - kContext - 1)));
        return loss_at(starts);
    }
    double samples_per_epoch() const override { return static_cast<double>(train_) / static_cast<double>(kContext); }
    double evaluate() override
    {
        std::vector<std::int64_t> starts;
        const std::int64_t room = letters_.size(0) - train_ - kContext - 1;
        for (std::int64_t i = 0; i < kValidationWindows; ++i)
            starts.push_back(train_ + i * room / kValidationWindows);
        return loss_at(starts).item<double>();
    }
    const char *quality_name() const override { return "val_loss"; }

  private:
    /// Heads have a fixed width.
    static std::int64_t rounded(std::uint32_t width)
    {
        return std::max<std::int64_t>(1, (width + kHeadWidth / 2) / kHeadWidth) * kHeadWidth;
    }
    at::Tensor loss_at(const std::vector<std::int64_t> &starts)
    {
        std::vector<at::Tensor> windows;
        for (const std::int64_t start : starts)
            windows.push_back(letters_.narrow(0, start, kContext + 1));
        const at::Tensor text = at::stack(windows);
        const at::Tensor guess = net_->forward(text.narrow(1, 0, kContext));
        return nn::functional::cross_entropy(guess.flatten(0, 1), text.narrow(1, 1, kContext).reshape({-1}));
    }

    Options options_;
    Corpus corpus_;
    at::Tensor letters_;
    std::int64_t train_;
    std::shared_ptr<TextNet> net_;
};

} // namespace

std::unique_ptr<Task> make_text(const Options &options)
{
    return std::make_unique<Text>(options);
}

} // namespace jigsaw::examples
