# All C++ sources, by folder. The README of the layers says in which order the folders may include each other.
file(GLOB_RECURSE core_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} csrc/*.cc master/*.cc)
file(GLOB_RECURSE torch_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} csrc/torch/*.cc)
file(GLOB master_main CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} master/main.cc)
list(REMOVE_ITEM core_sources ${torch_sources} ${master_main})
