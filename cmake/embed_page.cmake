# Writes a source with the page of a master as a string: cmake -DFROM=page.html -DTO=page.cc -P embed_page.cmake.
file(READ ${FROM} page)
if(page MATCHES "\\)page\"")
  message(FATAL_ERROR "${FROM} has the text )page\", which would end the string in ${TO}: write it in another way")
endif()
file(WRITE ${TO} "#include \"master/http/page.h\"

std::string_view pccl::master::http::page() {
  return R\"page(${page})page\";
}
")
