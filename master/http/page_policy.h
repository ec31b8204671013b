// page_policy: the Content-Security-Policy of the page. A browser then runs and applies the inline
// scripts and styles that the page had when it was built, and nothing else: not even a name of a
// peer that looks like HTML. A pure function of the page.
#pragma once

#include <string>
#include <string_view>

namespace pccl::master::http {

// Names the hash of the text in each <script> and each <style>. The page may connect to its own
// origin only, and no other page may frame it.
std::string policy_of(std::string_view page);

}  // namespace pccl::master::http
