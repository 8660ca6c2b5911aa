// SPDX-License-Identifier: GPL-2.0-or-later
// Which GPUs look taken. cons_tres believes the node's records; a View makes exactly the GPUs that we offer look free
// while it decides, and its destructor writes the truth back whatever path is left.
#ifndef JIGSAW_SELECT_VIEW_HPP
#define JIGSAW_SELECT_VIEW_HPP

#include "plugin/select/occupancy.hpp"

namespace jigsaw::select {

/// The truth: a GPU is taken when a resident holds it, once, however many they are.
void write_truth(const Occupancy &occupancy, int node);
void write_truth(const Occupancy &occupancy, const std::vector<int> &nodes);

/// Is the node's record what write_truth() would make it?
bool truth_stands(const Occupancy &occupancy, int node);

class View {
  public:
    explicit View(const Occupancy &occupancy) : occupancy_(occupancy) {}
    ~View();
    View(const View &) = delete;
    View &operator=(const View &) = delete;

    /// On this node exactly these GPUs look free.
    void show_free(int node, const std::vector<int> &gpus);
    /// All taken GPUs stay taken, but these look free.
    void also_free(int node, const std::vector<int> &gpus);
    /// Nothing is taken on this node.
    void show_empty(int node);

  private:
    void write(int node, const std::vector<bool> &busy);
    const Occupancy &occupancy_;
    std::set<int> touched_;
};

/// Lets shared nodes be charged for each resident in full, for the time in which cons_tres counts everything anew from
/// the running jobs. Never for a new job: the job's bitmap would be sized by it, and the next restart kills the job
/// ("gres/gpu count mismatch").
class Inflation {
  public:
    explicit Inflation(const Occupancy &occupancy);
    ~Inflation();
    Inflation(const Inflation &) = delete;
    Inflation &operator=(const Inflation &) = delete;

  private:
    struct Saved {
        int node;
        uint64_t available;
        bitoff_t size;
    };
    std::vector<Saved> saved_;
};

} // namespace jigsaw::select
#endif
