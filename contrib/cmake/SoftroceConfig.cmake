# Runs the tests of a CMake project on softroce, an RDMA card in software.
#
#   find_package(Softroce REQUIRED)
#   softroce_run_tests_of(my_tests)          # my_tests: a target of add_executable
#   gtest_discover_tests(my_tests)           # or: add_test(NAME t COMMAND my_tests)
#
# CTest then starts the program as `softroce run -- my_tests …`. Options of `softroce run` stand after the target:
#
#   softroce_run_tests_of(my_tests --device-address 127.0.0.2)
#
# Tests whose command is no target of the project (scripts, several processes) name the launcher themselves:
#
#   add_test(NAME both COMMAND ${Softroce_LAUNCHER} ./both.sh)
#
# find_package looks below each directory of PATH and of CMAKE_PREFIX_PATH, also for a prefix that was moved.

cmake_policy(PUSH)
cmake_policy(VERSION 3.16...3.29)

# This file lies in PREFIX/lib/cmake/Softroce.
find_program(Softroce_EXECUTABLE softroce HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../bin" NO_DEFAULT_PATH
  DOC "The softroce command")
if(NOT Softroce_EXECUTABLE)
  set(Softroce_FOUND FALSE)
  set(Softroce_NOT_FOUND_MESSAGE "no softroce command in bin/ beside ${CMAKE_CURRENT_LIST_DIR}")
  cmake_policy(POP)
  return()
endif()

set(Softroce_LAUNCHER "${Softroce_EXECUTABLE}" run --)

function(softroce_run_tests_of target)
  # CTest puts this property's command in front of each test of the target; test discovery does so too. Newer
  # versions of CMake have a property of its own for it, which leaves cross compiling alone.
  set(launcher "${Softroce_EXECUTABLE}" run ${ARGN} --)
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.29)
    set_target_properties(${target} PROPERTIES TEST_LAUNCHER "${launcher}")
  else()
    set_target_properties(${target} PROPERTIES CROSSCOMPILING_EMULATOR "${launcher}")
  endif()
endfunction()

cmake_policy(POP)
