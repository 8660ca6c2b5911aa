// SPDX-License-Identifier: Apache-2.0
// What needs LibTorch's front end: modules as blocks, checkpoints. Apart from the rest, since these headers cost most.
#include <jigsaw/torch.hpp>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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

namespace {

/// LibTorch's errors carry a backtrace; what users can do something about is its first line, and the file.
template <class Function> void say_file(const std::string &path, const char *what, Function function)
{
    try {
        function();
    } catch (const c10::Error &error) {
        const std::string text = error.what_without_backtrace();
        throw Error(JIGSAW_INVALID_ARGUMENT, "jigsaw: " + path + what + ": " + text.substr(0, text.find('\n')));
    }
}

} // namespace

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
    say_file(path, " cannot be written", [&] { archive.save_to(whole); });
    if (std::rename(whole.c_str(), path.c_str()) != 0)
        throw Error(JIGSAW_SYSTEM_ERROR, "jigsaw: cannot rename " + whole + " to " + path + ": " + std::strerror(errno));
}

std::uint64_t load_checkpoint(const std::string &path, ::torch::nn::Module *module, ::torch::optim::Optimizer *optimizer)
{
    ::torch::serialize::InputArchive archive, model, state;
    c10::IValue version, next_iteration;
    say_file(path, " is no checkpoint of jigsaw", [&] {
        archive.load_from(path);
        archive.read("jigsaw_version", version);
        archive.read("next_iteration", next_iteration);
        archive.read("model", model);
        archive.read("optimizer", state);
    });
    say_file(path, " is a checkpoint of another model or optimizer", [&] {
        module->load(model);
        optimizer->load(state);
    });
    return static_cast<std::uint64_t>(next_iteration.toInt());
}

} // namespace torch
} // namespace jigsaw
