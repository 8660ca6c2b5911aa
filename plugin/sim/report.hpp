// SPDX-License-Identifier: Apache-2.0
// What a simulation prints and writes.
#ifndef JIGSAW_SIM_REPORT_HPP
#define JIGSAW_SIM_REPORT_HPP

#include "plugin/sim/experiment.hpp"

#include <string>
#include <vector>

namespace jigsaw::sim {

/// One JSON object in a line.
std::string json_line(const Experiment &experiment, const Summary &summary);
/// A table for people, one row per policy.
std::string text_table(const std::vector<Summary> &summaries);

/// CSV of every job, of the cluster over time, of GPUs over time; appended policy by policy. These throw InputError
/// when the file cannot be written.
class CsvFile {
  public:
    CsvFile(const std::string &path, const char *header);
    ~CsvFile();
    CsvFile(const CsvFile &) = delete;
    CsvFile &operator=(const CsvFile &) = delete;
    void line(const std::string &text);
    void close();

  private:
    std::string path_;
    std::FILE *file_;
};

extern const char *const kJobsHeader, *const kSamplesHeader, *const kSpansHeader;
void write_jobs(CsvFile *file, const Summary &summary);
void write_samples(CsvFile *file, const Summary &summary);
void write_spans(CsvFile *file, const Summary &summary);

} // namespace jigsaw::sim
#endif
