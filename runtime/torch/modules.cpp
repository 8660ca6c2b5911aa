// SPDX-License-Identifier: Apache-2.0
// What needs LibTorch's front end: modules as blocks, checkpoints. Apart from the rest, since these headers cost most.
#include <jigsaw/torch.hpp>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <cstdio>
#include <unistd.h>

namespace jigsaw {
namespace torch {

Trainer attach(const std::vector<std::shared_ptr<::torch::nn::Module>> &blocks, const Options &options)
{
    std::vector<Block> named;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        TORCH_CHECK(blocks[b] != nullptr, "jigsaw: block ", b, " is a null module");
        named.push_back({std::to_string(b) + " (" + blocks[b]->name() + ")", blocks[b]->parameters(), blocks[b]->buffers()});
    }
    return Trainer(std::move(named), options);
}

void save_checkpoint(const std::string &path, const ::torch::nn::Module &module,
                     const ::torch::optim::Optimizer &optimizer, std::uint64_t next_iteration)
{
    ::torch::serialize::OutputArchive archive, model, state;
    module.save(model);
    optimizer.save(state);
    archive.write("jigsaw_version", c10::IValue(std::string(jigsaw_version())));
    archive.write("next_iteration", c10::IValue(static_cast<std::int64_t>(next_iteration)));
    archive.write("model", model);
    archive.write("optimizer", state);
    const std::string whole = path + ".new." + std::to_string(getpid());
    archive.save_to(whole);
    TORCH_CHECK(std::rename(whole.c_str(), path.c_str()) == 0, "jigsaw: cannot rename ", whole, " to ", path);
}

std::uint64_t load_checkpoint(const std::string &path, ::torch::nn::Module *module, ::torch::optim::Optimizer *optimizer)
{
    ::torch::serialize::InputArchive archive, model, state;
    c10::IValue version, next_iteration;
    archive.load_from(path);
    TORCH_CHECK(archive.try_read("jigsaw_version", version), "jigsaw: ", path, " is no checkpoint of jigsaw");
    archive.read("next_iteration", next_iteration);
    archive.read("model", model);
    archive.read("optimizer", state);
    module->load(model);
    optimizer->load(state);
    return static_cast<std::uint64_t>(next_iteration.toInt());
}

} // namespace torch
} // namespace jigsaw
