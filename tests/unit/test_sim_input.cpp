// SPDX-License-Identifier: Apache-2.0
// What jigsaw sim reads: traces of every kind, profiles, the generator, and what it says of bad lines.
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

#include "tests/lib/suite.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace {

using namespace jigsaw::sim;

/// A file that is there as long as this is.
class TextFile {
  public:
    explicit TextFile(const std::string &text, const std::string &ending = ".csv")
    {
        char name[] = "/tmp/jigsaw-sim-XXXXXX";
        const int fd = mkstemp(name);
        ck_assert_int_ge(fd, 0);
        close(fd);
        unlink(name);
        path_ = name + ending;
        std::ofstream(path_) << text;
    }
    ~TextFile() { unlink(path_.c_str()); }
    TextFile(const TextFile &) = delete;
    TextFile &operator=(const TextFile &) = delete;
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

template <typename Call> std::string complaint(Call call)
{
    try {
        call();
    } catch (const InputError &error) {
        return error.what();
    }
    return "";
}

void check_near(double got, double wanted)
{
    ck_assert_msg(std::fabs(got - wanted) <= 1e-9 * std::max(1.0, std::fabs(wanted)), "%.12g is not %.12g", got,
                  wanted);
}

const char *const kMuriHeader = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
                                "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n";

TraceOptions options_for(const TextFile &file)
{
    TraceOptions options;
    options.path = file.path();
    return options;
}

START_TEST(reads_muri)
{
    const TextFile file(std::string(kMuriHeader) + "7,4,5000,1000,bert,4,190000,0,190,0.5,163,18,0\n"
                                                   "8,1,2000,10,vgg16,16,1,0,100,80,60,0,1\n");
    const Workload got = read_trace(options_for(file));
    ck_assert_uint_eq(got.jobs.size(), 2);
    ck_assert_str_eq(got.jobs[0].name, "8"); // by submit time
    check_near(got.jobs[0].submit_s, 0);
    check_near(got.jobs[1].submit_s, 3);
    check_near(got.jobs[1].isolated_s(), 1000 * 0.190 * 1.015);
    const JobType &type = got.types[static_cast<std::size_t>(got.jobs[1].type)];
    ck_assert_str_eq(type.model, "bert");
    ck_assert_int_eq(type.gpus, 4);
    check_near(type.stages.gpu_ms, 163);
    check_near(type.stages.network_ms, 18);
    check_near(type.restart_s, 10);
}
END_TEST

START_TEST(reads_philly)
{
    const TextFile file("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
                        "2017-10-08 07:01:55,30.0,2,60.0,6214e9\n");
    const Workload got = read_trace(options_for(file));
    ck_assert_uint_eq(got.jobs.size(), 2);
    check_near(got.jobs[0].submit_s, 0);
    check_near(got.jobs[1].submit_s, 86400);
    check_near(got.jobs[1].isolated_s(), 66);
    ck_assert_str_eq(got.jobs[0].user, "6214e9");
    ck_assert_int_eq(got.gpus_of(got.jobs[0]), 2);
}
END_TEST

START_TEST(reads_sacct)
{
    const TextFile file("JobID|User|JobName|Submit|Elapsed|Timelimit|AllocTRES|State\n"
                        "1|ann|bert|2026-01-01T10:00:00|00:10:00|1-00:00:00|billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2|OK\n"
                        "1.batch||batch|2026-01-01T10:00:00|00:10:00||cpu=4|OK\n"
                        "2|ann|x|2026-01-01T10:00:30|02:00.500|UNLIMITED|gres/gpu:a=1,gres/gpu:b=3|OK\n"
                        "3|ann|cpu|2026-01-01T10:00:30|00:01:00|UNLIMITED|cpu=1|OK\n"
                        "4|ann|never|2026-01-01T10:00:30|00:00:00|UNLIMITED|gres/gpu=1|CANCELLED\n");
    const Workload got = read_trace(options_for(file));
    ck_assert_uint_eq(got.jobs.size(), 2);
    ck_assert_uint_eq(got.bad_lines, 0);
    check_near(got.jobs[0].isolated_s(), 600);
    check_near(got.jobs[0].limit_s, 86400);
    ck_assert_int_eq(got.gpus_of(got.jobs[0]), 2);
    check_near(got.jobs[1].submit_s, 30);
    check_near(got.jobs[1].isolated_s(), 120.5);
    check_near(got.jobs[1].limit_s, 0);
    ck_assert_int_eq(got.gpus_of(got.jobs[1]), 4);
}
END_TEST

START_TEST(reads_gavel)
{
    const TextFile table("{\"v100\": {\"('LM (batch size 5)', 1)\": {\"null\": 4.0}}, \"k80\": {\"('LM (batch size 5)', "
                         "1)\": {\"null\": 2.0}}}",
                         ".json");
    const TextFile file("LM (batch size 5)\tpython x\tlm\t--steps\t1\t100\t1\t1\t-1.0\t12.5\n"
                        "LM (batch size 5)\tpython x\tlm\t--steps\t1\t100\t2\t1\t-1.0\t12.5\n");
    TraceOptions options = options_for(file);
    ck_assert_msg(complaint([&] { read_trace(options); }).find("--throughputs") != std::string::npos, "no hint");
    options.throughputs = table.path();
    ck_assert_str_eq(complaint([&] { read_trace(options); }),
                     file.path() + ":2: no throughput of 'LM (batch size 5)' on 2 GPUs; --skip-bad leaves such "
                                   "lines out");
    options.skip_bad = true;
    check_near(read_trace(options).jobs.at(0).isolated_s(), 25);
    options.throughputs = table.path() + ":k80";
    check_near(read_trace(options).jobs.at(0).isolated_s(), 50);
}
END_TEST

START_TEST(names_bad_lines)
{
    const struct {
        const char *line, *why;
    } rows[] = {
        {"0,x,0,1,m,1,1,0,1,1,1,1,0\n", ":3: num_gpu 'x' is no number"},
        {"0,0,0,1,m,1,1,0,1,1,1,1,0\n", ":3: num_gpu 0 is not in 1..1e+06"},
        {"0,1,-5,1,m,1,1,0,1,1,1,1,0\n", ":3: submit_time -5 is not in 0..1e+15"},
        {"0,1,0,nan,m,1,1,0,1,1,1,1,0\n", ":3: iterations 'nan' is no number"},
        {"0,1,0,1,m,1,1,0,0,1,1,1,0\n", ":3: iteration_time 0 is not in 1e-06..1e+15"},
        {"0,1,0\n", ":3: no field 'model_name', 3 fields in all"},
    };
    for (const auto &row : rows) {
        const TextFile file(std::string(kMuriHeader) + "0,1,0,1,m,1,1,0,1,1,1,1,0\n" + row.line);
        TraceOptions options = options_for(file);
        ck_assert_str_eq(complaint([&] { read_trace(options); }),
                         file.path() + row.why + "; --skip-bad leaves such lines out");
        options.skip_bad = true;
        const Workload got = read_trace(options);
        ck_assert_uint_eq(got.jobs.size(), 1);
        ck_assert_uint_eq(got.bad_lines, 1);
    }
}
END_TEST

START_TEST(refuses_what_is_no_trace)
{
    const TextFile other("a,b\n1,2\n"), empty(""), binary(std::string("timestamp,duration,num_gpus\n\0\0\n", 31));
    ck_assert_msg(complaint([&] { read_trace(options_for(other)); }).find(":1: no trace that I know") !=
                      std::string::npos,
                  "taken");
    ck_assert_str_eq(complaint([&] { read_trace(options_for(empty)); }), empty.path() + ": empty");
    ck_assert_msg(complaint([&] { read_trace(options_for(binary)); }).find(":2: not a line of text") !=
                      std::string::npos,
                  "taken");
    for (const char *time : {"2017-13-01 00:00:00", "2017-01-01", "2017-01-01 00:00:00 x", "yesterday"})
        ck_assert_msg(!complaint([&] { parse_time(time); }).empty(), "%s was taken", time);
    check_near(parse_time("2024-02-29T12:00:00"), 1709208000);
}
END_TEST

START_TEST(reads_profiles)
{
    const TextFile peer("model,num_gpu,batch_size,iteration_time_ms,resource_time_0_ms,resource_time_1_ms,"
                        "resource_time_2_ms\nbert,1,4,178,0.5,160,0\nbert,4,4,190,0.5,163,18\n");
    const ProfileBook book = read_profiles(peer.path());
    check_near(book.type("bert", 1).stages.iteration_ms, 178);
    check_near(book.type("bert", 2).stages.iteration_ms, 190); // the next larger row
    check_near(book.type("bert", 9).stages.iteration_ms, 190); // the largest
    ck_assert_int_eq(book.type("bert", 2).gpus, 2);
    const TextFile own("model,num_gpu,iteration_ms,forward_ms,backward_ms,network_ms,cpu_ms,io_ms,host_capacity\n"
                       "r,4,115,30,10/25/40/60,20,4,6,3\n");
    const TextFile json("[{\"model\":\"r\",\"num_gpu\":4,\"iteration_ms\":115,\"forward_ms\":30,\"backward_ms\":"
                        "[10,25,40,60],\"network_ms\":20,\"cpu_ms\":4,\"io_ms\":6,\"host_capacity\":3}]",
                        ".json");
    for (const std::string &path : {own.path(), json.path()}) {
        const JobType type = read_profiles(path).type("r", 4);
        check_near(type.stages.gpu_ms, 90);
        check_near(type.stages.forward_share, 1.0 / 3);
        check_near(type.stages.host_ms, 10);
        check_near(type.stages.host_capacity, 3);
        ck_assert_uint_eq(type.stages.backward_ms_of_level.size(), 4);
    }
    const TextFile falling("model,num_gpu,iteration_ms,forward_ms,backward_ms,network_ms\nr,4,115,30,10/5,20\n");
    ck_assert_msg(complaint([&] { read_profiles(falling.path()); }).find(":2: backward_ms must not fall") !=
                      std::string::npos,
                  "taken");
}
END_TEST

START_TEST(prices_depth)
{
    const DepthCurve curve;
    check_near(curve.share(0.25), 0.2088);
    check_near(curve.share(0.125), 0.1044);
    check_near(curve.share(1), 1);
    JobType type;
    type.gpus = 4;
    type.stages.gpu_ms = type.stages.iteration_ms = 93.762;
    const jigsaw::core::Profile profile = profile_of(type, curve);
    check_near(profile.forward_ms, 30.429);
    ck_assert_uint_eq(profile.backward_ms_of_level.size(), 4);
    check_near(profile.backward_ms_of_level[1], 63.333 * 0.3905);
    const TextFile costs("model_batch,fwd_ms,bwd_ms,suffix_frac_of_bwd_convs,cum_bwd_frac\nx,1,2,0.5,0.2\nx,1,2,1,1\n");
    check_near(read_depth_costs(costs.path(), "x").share(0.75), 0.6);
    ck_assert_msg(!complaint([&] { read_depth_costs(costs.path(), "y"); }).empty(), "y was found");
}
END_TEST

START_TEST(generates_alike)
{
    GeneratorOptions options = parse_generator("jobs=500,interarrival=10,median=100,sigma=1,least=20,most=900,gpus=1:3/4:1");
    const TraceRows first = generate(options), second = generate(options);
    ck_assert_uint_eq(first.size(), 500);
    std::size_t wide = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
        ck_assert(first[i].submit_s == second[i].submit_s && first[i].iteration_s == second[i].iteration_s);
        ck_assert(first[i].iteration_s >= 20 && first[i].iteration_s <= 900);
        ck_assert(first[i].gpus == 1 || first[i].gpus == 4);
        wide += first[i].gpus == 4;
    }
    ck_assert_uint_ge(wide, 90); // 125 expected
    ck_assert_uint_le(wide, 160);
    options.seed = 2;
    ck_assert(generate(options)[0].iteration_s != first[0].iteration_s);
    for (const char *bad : {"jobs=0", "jobs=x", "gpus=1", "speed=3", "least=5,most=4"})
        ck_assert_msg(!complaint([&] { parse_generator(bad); }).empty(), "%s was taken", bad);
}
END_TEST

START_TEST(changes_workloads)
{
    TraceRows rows(3);
    for (std::size_t i = 0; i < 3; ++i) {
        rows[i].name = std::to_string(i);
        rows[i].submit_s = 10 * static_cast<double>(i);
        rows[i].iteration_s = 100;
        rows[i].gpus = i == 1 ? 20 : 1;
    }
    Workload workload = assemble(rows, TraceOptions{});
    drop_too_large(&workload, {2, 8});
    ck_assert_uint_eq(workload.jobs.size(), 2);
    ck_assert_uint_eq(workload.too_large, 1);
    set_limits(&workload, 5, 0, 1);
    check_near(workload.jobs[0].limit_s, 500);
    scale_load(&workload, 2);
    check_near(workload.jobs[1].submit_s, 10);
    Workload moved = workload;
    perturb(&moved, 600, 3);
    ck_assert(moved.jobs[0].submit_s <= moved.jobs[1].submit_s);
    ck_assert(moved.jobs[0].submit_s != workload.jobs[0].submit_s);
}
END_TEST

START_TEST(draws_models_from_profiles)
{
    TraceOptions options;
    JobType type;
    type.stages.iteration_ms = type.stages.gpu_ms = 1;
    for (const char *model : {"a", "b"}) {
        type.model = model;
        options.profiles.add(type);
    }
    const TraceRows rows = generate(parse_generator("jobs=100,gpus=1:1"));
    Workload workload = assemble(rows, options);
    ck_assert_uint_eq(workload.types.size(), 2);
    options.models = {"b"};
    workload = assemble(rows, options);
    ck_assert_uint_eq(workload.types.size(), 1);
    ck_assert_str_eq(workload.types[0].model, "b");
    options.models = {"c"};
    ck_assert_str_eq(complaint([&] { assemble(rows, options); }), "");
    options.path = "/nowhere";
    ck_assert_str_eq(complaint([&] { read_trace(options); }), "no profile of model 'c'; --profiles must name it");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sim input");
    jigsaw::tests::add_case(suite, "traces", {reads_muri, reads_philly, reads_sacct, reads_gavel});
    jigsaw::tests::add_case(suite, "complaints", {names_bad_lines, refuses_what_is_no_trace});
    jigsaw::tests::add_case(suite, "profiles", {reads_profiles, prices_depth});
    jigsaw::tests::add_case(suite, "workloads", {generates_alike, changes_workloads, draws_models_from_profiles});
    return jigsaw::tests::run_tap(suite);
}
