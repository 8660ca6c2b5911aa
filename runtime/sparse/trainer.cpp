// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/trainer.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sparse {

Trainer::Trainer(const Checkpoint &from, const Partition &partition, Comm &comm, Workers &workers, TrainingOptions options)
    : whole_(from), partition_(partition), comm_(comm), workers_(workers), options_(options),
      share_(share_of(from.model.network, partition, comm.rank())), passes_(share_, comm, workers, options.instructions),
      x_(share_.layers.size() + 1), ghost_(share_.layers.size())
{
    const bool remembers = from.optimizer == options_.optimizer && !from.weights.empty();
    steps_ = remembers ? from.step : 0;
    for (std::size_t k = 0; k < share_.layers.size(); ++k) {
        LayerShare &mine = share_.layers[k];
        layers_.push_back({TransposedBlock(mine.own.matrix), TransposedBlock(mine.ghost.matrix), {}, {}, {}, {}});
        Layer &layer = layers_.back();
        for (const std::uint32_t row : mine.rows)
            layer.bias.push_back(from.model.bias[k][row]);
        layer.own = parameters_of(&mine.own.matrix.value);
        layer.ghost = parameters_of(&mine.ghost.matrix.value);
        if (!remembers)
            continue;
        const auto pick = [](const std::vector<float> &all, const auto &which) {
            std::vector<float> picked;
            for (const auto at : which)
                if (!all.empty())
                    picked.push_back(all[at]);
            return picked;
        };
        layer.own.moments = {pick(from.weights[k].first, mine.own.origin), pick(from.weights[k].second, mine.own.origin)};
        layer.ghost.moments = {pick(from.weights[k].first, mine.ghost.origin), pick(from.weights[k].second, mine.ghost.origin)};
        layer.biases.moments = {pick(from.biases[k].first, mine.rows), pick(from.biases[k].second, mine.rows)};
    }
    for (Layer &layer : layers_) { // their places are final now
        const Moments kept = std::move(layer.biases.moments);
        layer.biases = parameters_of(&layer.bias);
        if (remembers)
            layer.biases.moments = kept;
    }
}

Trainer::Parameters Trainer::parameters_of(std::vector<float> *value) const
{
    Parameters parameters{value, std::vector<float>(value->size()), {}};
    if (options_.optimizer != Optimizer::none)
        parameters.moments.first.assign(value->size(), 0.0F);
    if (options_.optimizer == Optimizer::adam)
        parameters.moments.second.assign(value->size(), 0.0F);
    return parameters;
}

void Trainer::forward(const Samples &samples, const std::vector<std::uint32_t> &which)
{
    if (samples.features != whole_.model.network.inputs())
        throw Error("the samples have " + std::to_string(samples.features) + " features, the network takes " +
                    std::to_string(whole_.model.network.inputs()));
    fill_tiles(samples, which, share_.inputs, tile_width(static_cast<std::uint32_t>(which.size()), options_.widest), &x_[0]);
    for (std::size_t k = 0; k < layers_.size(); ++k) {
        Finish finish;
        finish.kind = k + 1 == layers_.size() ? Finish::linear : Finish::relu;
        finish.row_bias = layers_[k].bias.data();
        finish.clip = whole_.model.network.clip;
        passes_.forward(k, x_[k], &ghost_[k], &x_[k + 1], finish, nullptr);
    }
}

/// Every rank learns all outputs by a sum in which each output comes from one rank and zeros from the others: exact.
Score Trainer::score(const Samples &samples, const std::vector<std::uint32_t> &which, Tiles *delta)
{
    const Tiles &mine = x_.back();
    const std::vector<std::uint32_t> &rows = share_.layers.back().rows;
    const std::size_t classes = whole_.model.network.outputs(), count = which.size();
    outputs_.assign(classes * count, 0.0F);
    for (std::uint32_t row = 0; row < rows.size(); ++row)
        for (std::uint32_t s = 0; s < count; ++s)
            outputs_[s * classes + rows[row]] = mine.at(row, s);
    comm_.sum(outputs_.data(), outputs_.size());

    if (delta != nullptr) {
        delta->resize(mine.rows(), mine.count(), mine.width());
        std::fill_n(delta->tile(0), delta->tile_floats() * delta->count(), 0.0F);
    }
    Score score;
    score.samples = count;
    std::vector<double> share(classes);
    for (std::uint32_t s = 0; s < count; ++s) {
        const float *z = outputs_.data() + s * classes;
        const std::uint32_t label = samples.label.empty() ? 0 : samples.label[which[s]];
        if (label >= classes)
            throw Error("sample " + std::to_string(which[s] + 1) + " has the label " + std::to_string(label) + ", but the network has " +
                        std::to_string(classes) + " outputs");
        const float top = *std::max_element(z, z + classes);
        score.right += z[label] == top;
        if (options_.loss == Loss::softmax) {
            double sum = 0;
            for (std::size_t c = 0; c < classes; ++c)
                sum += share[c] = std::exp(static_cast<double>(z[c]) - top);
            for (double &one : share)
                one /= sum;
            score.loss -= std::log(std::max(share[label], 1e-300));
        } else {
            for (std::size_t c = 0; c < classes; ++c) {
                const double off = z[c] - (c == label ? 1.0 : 0.0);
                score.loss += off * off / 2;
                share[c] = z[c];
            }
        }
        if (delta != nullptr)
            for (std::uint32_t row = 0; row < rows.size(); ++row)
                delta->at(row, s) =
                    static_cast<float>((share[rows[row]] - (rows[row] == label ? 1.0 : 0.0)) / static_cast<double>(count));
    }
    return score;
}

void Trainer::backward(Tiles *delta)
{
    for (std::size_t k = layers_.size(); k-- > 0;) {
        Layer &layer = layers_[k];
        LayerShare &mine = share_.layers[k];
        const auto gradients = [&] {
            passes_.gradient(mine.own.matrix, x_[k], *delta, layer.own.gradient.data());
            if (mine.ghosts() > 0)
                passes_.gradient(mine.ghost.matrix, ghost_[k], *delta, layer.ghost.gradient.data());
            row_sums(delta->tile(0), delta->tile_floats(), delta->count(), delta->width(), 0, delta->rows(),
                     layer.biases.gradient.data());
        };
        if (k == 0) {
            gradients();
        } else {
            layer.own_transposed.take_values(mine.own.matrix);
            layer.ghost_transposed.take_values(mine.ghost.matrix);
            passes_.backward(k, *delta, layer.own_transposed, layer.ghost_transposed, &ghost_sums_, x_[k],
                             whole_.model.network.clip, &below_, gradients);
            std::swap(*delta, below_);
        }
        update(&layer.own, options_.decay);
        update(&layer.ghost, options_.decay);
        update(&layer.biases, 0);
    }
}

void Trainer::update(Parameters *parameters, float decay)
{
    float *w = parameters->value->data(), *m = parameters->moments.first.data(), *v = parameters->moments.second.data();
    const float *g = parameters->gradient.data(), rate = options_.rate, keep = options_.momentum;
    const std::size_t count = parameters->value->size();
    for (std::size_t i = 0; decay > 0 && i < count; ++i)
        w[i] -= rate * decay * w[i];
    if (options_.optimizer == Optimizer::sgd) {
        for (std::size_t i = 0; i < count; ++i) {
            m[i] = keep * m[i] + g[i];
            w[i] -= rate * m[i];
        }
        return;
    }
    if (options_.optimizer != Optimizer::adam)
        return;
    // Kingma and Ba 2015, with the corrections of both moments drawn into the rate (their section 2).
    const double steps = static_cast<double>(steps_);
    const double correction = std::sqrt(1 - std::pow(options_.second_momentum, steps)) / (1 - std::pow(options_.momentum, steps));
    const float step = static_cast<float>(rate * correction), keep2 = options_.second_momentum;
    for (std::size_t i = 0; i < count; ++i) {
        m[i] = keep * m[i] + (1 - keep) * g[i];
        v[i] = keep2 * v[i] + (1 - keep2) * g[i] * g[i];
        w[i] -= step * m[i] / (std::sqrt(v[i]) + options_.epsilon);
    }
}

Score Trainer::step(const Samples &samples, const std::vector<std::uint32_t> &which)
{
    forward(samples, which);
    const Score result = score(samples, which, &delta_);
    ++steps_;
    backward(&delta_);
    return result;
}

Score Trainer::evaluate(const Samples &samples, const std::vector<std::uint32_t> &which)
{
    // In batches as large as steps are at most: the same buffers serve.
    constexpr std::size_t at_once = 512;
    Score sum;
    for (std::size_t from = 0; from < which.size(); from += at_once) {
        const std::vector<std::uint32_t> part(which.begin() + static_cast<std::ptrdiff_t>(from),
                                              which.begin() + static_cast<std::ptrdiff_t>(std::min(from + at_once, which.size())));
        forward(samples, part);
        const Score one = score(samples, part, nullptr);
        sum.loss += one.loss;
        sum.right += one.right;
        sum.samples += one.samples;
    }
    return sum;
}

/// get(Layer) gives the vectors of own and ghost weights; rank 0 gets the layer's, in order.
template <typename Get> std::vector<float> Trainer::gather_weights(std::size_t k, const Get &get)
{
    const CsrMatrix &layer = whole_.model.network.layers[k];
    const LayerShare &mine = share_.layers[k];
    // Each rank lines its weights up row after row as the whole layer has them.
    std::vector<std::uint64_t> shift(mine.rows.size() + 1, 0);
    std::vector<float> line(mine.own.origin.size() + mine.ghost.origin.size());
    std::uint64_t at = 0;
    const auto &[own, ghost] = get(layers_[k]);
    for (std::uint32_t i = 0; i < mine.rows.size(); ++i) {
        const std::uint32_t row = mine.rows[i];
        for (const auto &[block, values] : {std::pair{&mine.own, own}, std::pair{&mine.ghost, ghost}})
            for (std::uint64_t j = block->matrix.row_start[i]; j < block->matrix.row_start[i + 1]; ++j)
                line[at + block->origin[j] - layer.row_start[row]] = (*values)[j];
        at += layer.row_nonzeros(row);
    }
    const std::vector<std::vector<float>> all = comm_.gather(line);
    std::vector<float> whole;
    if (all.empty())
        return whole;
    std::vector<std::uint64_t> next(all.size(), 0);
    for (std::uint32_t row = 0; row < layer.rows; ++row) {
        const std::uint32_t owner = partition_.owner[k + 1][row];
        const auto from = all[owner].begin() + static_cast<std::ptrdiff_t>(next[owner]);
        whole.insert(whole.end(), from, from + layer.row_nonzeros(row));
        next[owner] += layer.row_nonzeros(row);
    }
    return whole;
}

Checkpoint Trainer::collect()
{
    Checkpoint result = whole_;
    result.optimizer = options_.optimizer;
    result.step = steps_;
    result.weights.assign(layers_.size(), {});
    result.biases.assign(layers_.size(), {});
    const auto by_row = [&](std::size_t k, const std::vector<float> &mine) {
        const std::vector<std::vector<float>> all = comm_.gather(mine);
        std::vector<float> whole;
        std::vector<std::size_t> next(all.size(), 0);
        for (std::uint32_t row = 0; !all.empty() && row < whole_.model.network.layers[k].rows; ++row) {
            const std::uint32_t owner = partition_.owner[k + 1][row];
            whole.push_back(all[owner][next[owner]++]);
        }
        return whole;
    };
    using Pair = std::pair<const std::vector<float> *, const std::vector<float> *>;
    for (std::size_t k = 0; k < layers_.size(); ++k) {
        result.model.network.layers[k].value = gather_weights(k, [](const Layer &l) { return Pair{l.own.value, l.ghost.value}; });
        result.model.bias[k] = by_row(k, layers_[k].bias);
        if (options_.optimizer == Optimizer::none)
            continue;
        result.weights[k].first =
            gather_weights(k, [](const Layer &l) { return Pair{&l.own.moments.first, &l.ghost.moments.first}; });
        result.biases[k].first = by_row(k, layers_[k].biases.moments.first);
        if (options_.optimizer != Optimizer::adam)
            continue;
        result.weights[k].second =
            gather_weights(k, [](const Layer &l) { return Pair{&l.own.moments.second, &l.ghost.moments.second}; });
        result.biases[k].second = by_row(k, layers_[k].biases.moments.second);
    }
    return result;
}

} // namespace jigsaw::sparse
