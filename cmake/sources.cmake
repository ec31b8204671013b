# All C++ sources, by folder. tests/tidy/tidy_rules.py defines which folders a folder may include (LAYERS).
file(GLOB_RECURSE core_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} csrc/*.cc master/*.cc)
file(GLOB_RECURSE torch_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} csrc/torch/*.cc)
file(GLOB master_main CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} master/main.cc)
file(GLOB probe_main CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} csrc/probe/main.cc)
list(REMOVE_ITEM core_sources ${torch_sources} ${master_main} ${probe_main})
