// SPDX-License-Identifier: GPL-2.0-or-later
// One segment of ours, "jigsaw:{TEXT}", in a comment that others write, too. jigsawd writes the same form
// ("jigsaw:{"spb":"..."}", JSON) into AdminComment; the select plugin writes plain words into system_comment.
#ifndef JIGSAW_SELECT_SEGMENT_HPP
#define JIGSAW_SELECT_SEGMENT_HPP

#include <string>

namespace jigsaw::select {

/// "jigsaw:{TEXT}"; braces in plain words become parentheses, "" makes no segment.
std::string plain_segment(const std::string &words);

/// Our segment, with its "jigsaw:{" and "}"; "" when there is none. An unclosed one reaches to the end.
std::string find_segment(const std::string &comment);
/// The comment without our segment, blanks tidied.
std::string without_segment(const std::string &comment);
/// The comment with our segment replaced by `segment`: in its place, or at the end when there was none, or removed when
/// `segment` is empty. All that others wrote is kept.
std::string replace_segment(const std::string &comment, const std::string &segment);

/// Somebody sets a comment from `old` to `wanted`. Whoever writes only our segment means only that; whoever writes none
/// does not mean to remove it.
std::string merge_comments(const std::string &old, const std::string &wanted);

} // namespace jigsaw::select
#endif
