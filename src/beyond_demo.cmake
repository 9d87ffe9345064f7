# Sources that nothing calls of what ./demo's command does. Its link throws them away (--gc-sections), so that it misses no name of
# theirs, and they are not compiled: an eighth of the build. If a link misses a name, take the file that has it off the list.
function(windlass_beyond_demo target folder)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/)
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${target} PROPERTY HEADER_FILE_ONLY ON)
endfunction()

windlass_beyond_demo(windlass base assembly_text.cpp)
windlass_beyond_demo(windlass formats/image core.cpp decompress_stream.cpp laid_out_object.cpp minidump.cpp)
windlass_beyond_demo(windlass formats/winx64 epilogue_v2.cpp handlers.cpp handlers_not_asked.cpp)
windlass_beyond_demo(windlass lookup/sources function_tables.cpp rows_source.cpp unwind_reader.cpp)
windlass_beyond_demo(windlass rows frame_state.cpp prologue.cpp written_rows.cpp)
windlass_beyond_demo(windlass runtimes accessor.cpp described_code.cpp evaluator.cpp interpreted_frames.cpp own_ranges.cpp
  windows/find.cpp windows/rows.cpp windows/tables.cpp)
windlass_beyond_demo(windlass walk interpreted.cpp managed_code.cpp managed_table.cpp range_source.cpp own/backtrace.cpp own/capture.cpp
  own/fast_walk.cpp own/function.cpp own/prepare.cpp own/record.cpp own/rules.cpp own/space.cpp)
windlass_beyond_demo(windlass walk/target attachment.cpp core.cpp core_maps.cpp dump_file.cpp dump_memory.cpp equal_stacks.cpp
  file_search.cpp link_map.cpp minidump.cpp minidump_context.cpp modules.cpp open.cpp pe_modules.cpp process.cpp process_memory.cpp
  process_modules.cpp regsets.cpp table_code.cpp thread_stacks.cpp)
windlass_beyond_demo(windlass_symbols symbols dwarf_location.cpp file_subject.cpp frame_arguments.cpp known_modules.cpp
  process_subject.cpp space_subject.cpp stack.cpp stack_text.cpp symbolizer.cpp value_text.cpp)
windlass_beyond_demo(windlass_export profiler/export top_lines.cpp top_model.cpp top_sums.cpp)
