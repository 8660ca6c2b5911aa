// SPDX-License-Identifier: Apache-2.0
// A CNN with BatchNorm in four blocks on the UCI handwritten digits (data/README.md has the attribution).
#include "runtime/examples/shard.hpp"
#include "runtime/examples/task.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/activation.h>

#include <fstream>
#include <sstream>

namespace jigsaw::examples {

namespace {

namespace nn = ::torch::nn;

constexpr std::int64_t kSide = 8, kPixels = kSide * kSide, kClasses = 10;
/// Images kept for the score.
constexpr std::int64_t kTest = 597;

struct Images {
    at::Tensor pixels; ///< [n, 1, 8, 8], 0..1
    at::Tensor labels; ///< [n]
};

[[noreturn]] void bad_line(const std::string &path, std::size_t number, const std::string &what)
{
    throw std::runtime_error(path + ":" + std::to_string(number) + ": " + what);
}

Images read_images(const std::string &path)
{
    std::ifstream file(path);
    if (!file)
        throw NoData{"no digits at " + path + "; give --data"};
    std::vector<float> pixels;
    std::vector<std::int64_t> labels;
    std::string line, cell;
    while (std::getline(file, line)) {
        std::istringstream cells(line);
        for (std::int64_t column = 0; column <= kPixels; ++column) {
            if (!std::getline(cells, cell, ','))
                bad_line(path, labels.size() + 1, "fewer than 65 numbers");
            const int most = column < kPixels ? 16 : 9;
            char *rest = nullptr;
            const long value = std::strtol(cell.c_str(), &rest, 10);
            if (cell.empty() || *rest != '\0' || value < 0 || value > most)
                bad_line(path, labels.size() + 1, "column " + std::to_string(column + 1) + " is \"" + cell.substr(0, 20) +
                                                      "\", allowed is 0 to " + std::to_string(most));
            if (column < kPixels)
                pixels.push_back(static_cast<float>(value) / 16.0f);
            else
                labels.push_back(value);
        }
    }
    const auto n = static_cast<std::int64_t>(labels.size());
    if (n <= kTest)
        throw std::runtime_error(path + ": " + std::to_string(n) + " images; more than " + std::to_string(kTest) + " are needed");
    return {::torch::tensor(pixels).view({n, 1, kSide, kSide}), ::torch::tensor(labels, at::kLong)};
}

void add_conv(nn::Sequential &block, std::int64_t in, std::int64_t out)
{
    block->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
    block->push_back(nn::BatchNorm2d(out));
    block->push_back(nn::ReLU());
}

struct DigitsNet : nn::Module {
    explicit DigitsNet(std::int64_t width)
    {
        add_conv(first, 1, width);
        add_conv(first, width, width);
        add_conv(second, width, width);
        add_conv(second, width, width);
        second->push_back(nn::MaxPool2d(2));
        add_conv(third, width, 2 * width);
        add_conv(third, 2 * width, 2 * width);
        add_conv(last, 2 * width, 2 * width);
        last->push_back(nn::AdaptiveAvgPool2d(1));
        last->push_back(nn::Flatten());
        last->push_back(nn::Linear(2 * width, kClasses));
        register_module("first", first);
        register_module("second", second);
        register_module("third", third);
        register_module("last", last);
    }
    at::Tensor forward(const at::Tensor &x)
    {
        return last->forward(third->forward(second->forward(first->forward(x))));
    }
    nn::Sequential first, second, third, last;
};

class Digits : public Task {
  public:
    explicit Digits(const Options &options)
        : batch_(options.batch), images_(read_images(options.data)), net_(std::make_shared<DigitsNet>(options.width)),
          shards_(options.seed, static_cast<std::size_t>(images_.labels.size(0) - kTest))
    {
        // Which images are for the score must not depend on the seed: seeds are compared with each other.
        const std::vector<std::int64_t> order = shuffled(static_cast<std::size_t>(images_.labels.size(0)), 20211111);
        const at::Tensor index = ::torch::tensor(order, at::kLong);
        images_ = {images_.pixels.index_select(0, index), images_.labels.index_select(0, index)};
    }
    nn::Module &module() override { return *net_; }
    std::vector<std::shared_ptr<nn::Module>> blocks() override
    {
        return {net_->first.ptr(), net_->second.ptr(), net_->third.ptr(), net_->last.ptr()};
    }
    at::Tensor loss(std::uint64_t iteration, int rank, int world_size) override
    {
        const std::vector<std::int64_t> samples = shards_.batch(iteration, rank, world_size, batch_);
        at::Tensor index = ::torch::tensor(samples, at::kLong) + kTest;
        return nn::functional::cross_entropy(net_->forward(images_.pixels.index_select(0, index)),
                                             images_.labels.index_select(0, index));
    }
    double samples_per_epoch() const override { return static_cast<double>(images_.labels.size(0) - kTest); }
    double evaluate() override
    {
        const at::Tensor guess = net_->forward(images_.pixels.narrow(0, 0, kTest)).argmax(1);
        return guess.eq(images_.labels.narrow(0, 0, kTest)).to(at::kDouble).mean().item<double>();
    }
    const char *quality_name() const override { return "accuracy"; }

  private:
    std::uint32_t batch_;
    Images images_;
    std::shared_ptr<DigitsNet> net_;
    Shards shards_;
};

} // namespace

std::unique_ptr<Task> make_digits(const Options &options)
{
    return std::make_unique<Digits>(options);
}

} // namespace jigsaw::examples
