# cmake -D PROJECT_SOURCE_DIR=... -D PROJECT_BINARY_DIR=... -P fetch_web_assets.cmake: fetches the page's scripts ahead of the configuration.
include(${CMAKE_CURRENT_LIST_DIR}/WebAssets.cmake)
windlass_web_assets()
