// Looks at the files of an RDMA device as C++ programs do.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

namespace fs = std::filesystem;

int main() {
    const fs::path card = "/sys/class/infiniband/softroce0";
    std::set<std::string> seen;
    for (const auto &entry : fs::recursive_directory_iterator("/sys/class/infiniband/",
                                                              fs::directory_options::follow_directory_symlink)) {
        seen.insert(entry.path().filename());
        if (seen.size() > 1000) break;
        if (entry.path().filename() == "device" || entry.path().filename() == "subsystem") continue;
        if (seen.count("gids") && seen.count("gid_attrs")) break;
    }
    std::string state;
    std::getline(std::ifstream(card / "ports/1/state"), state);
    const bool right = fs::is_directory(card) && fs::is_symlink(card) && fs::exists("/dev/infiniband/uverbs0") &&
                       fs::is_character_file("/dev/infiniband/uverbs0") && seen.count("softroce0") &&
                       fs::canonical(card / "device") == "/sys/devices/virtual/softroce/softroce0" &&
                       fs::read_symlink(card).is_relative() && state == "4: ACTIVE";
    if (!right) std::cout << "state `" << state << "`, canonical " << fs::canonical(card / "device") << '\n';
    return right ? 0 : 1;
}
