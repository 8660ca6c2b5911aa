// SPDX-License-Identifier: Apache-2.0
// Comm over MPI. Only the thread that started MPI may use it.
#ifndef JIGSAW_RUNTIME_SPARSE_MPI_COMM_HPP
#define JIGSAW_RUNTIME_SPARSE_MPI_COMM_HPP

#include "runtime/sparse/comm.hpp"

#include <string>

namespace jigsaw::sparse {

/// MPI from here to the end of the program. A rank that cannot go on calls abort(): the launcher then ends the others.
class Mpi {
public:
    Mpi(int *argc, char ***argv);
    ~Mpi();
    Mpi(const Mpi &) = delete;
    Mpi &operator=(const Mpi &) = delete;

    int rank() const;
    int size() const;
    [[noreturn]] void abort(int status);
    /// The lowest rank that brings a text (empty: none), and its text; the same everywhere.
    std::string first_complaint(const std::string &mine, int *ret_rank);
};

/// All ranks of MPI. `patience_s`: how long a peer may stay silent in a layer before it is taken for dead.
std::unique_ptr<Comm> make_mpi_comm(double patience_s);

} // namespace jigsaw::sparse

#endif
